//! The page of a run that broke: whoever opens it must see what broke, who led, what was cut and killed, and what
//! clients asked and were told.

use std::time::Duration;
use tenon_env::Plant;
use tenon_sim::nemesis::Fault;
use tenon_sim::swarm::{Plan, run_told};

#[test]
fn a_page_of_a_broken_run_shows_what_is_needed_to_understand_it() {
    let mut plan = Plan::proving(Plant::DropWatchEvent, 1);
    plan.faults = vec![Fault::KillLeader, Fault::IsolateLeader];
    plan.every = Duration::from_millis(300);
    let (verdict, story) = run_told(1, &plan);
    let found = verdict.expect_err("the mistake is noticed").to_string();
    let facts = vec![("drawn".to_owned(), format!("{plan:?}"))];
    let html = story
        .page(
            1,
            "tenon sim --seed 1".to_owned(),
            facts,
            Some(found.clone()),
        )
        .render();
    let sentence = found.split(['"', '&', '<']).next().unwrap_or_default();
    assert!(sentence.len() > 10 && html.contains(sentence), "{found}");
    for wanted in [
        "A promise was broken at",
        "Before it broke",
        "tenon sim --seed 1",
        "leads in term",
        "follows in term",
        "nothing passes from",
        "killed; its disk",
        "life 1 begins",
        "<div>client 1",
        "put k",
        "answered: revision",
        "by member",
    ] {
        assert!(
            html.contains(wanted),
            "no {wanted:?} in the page of: {found}"
        );
    }
}

#[test]
fn a_page_of_a_run_that_held_says_so() {
    let mut plan = Plan::lasting(3, Duration::from_secs(1));
    plan.world.founders = 1;
    plan.churn = None;
    let (verdict, story) = run_told(3, &plan);
    verdict.expect("it holds");
    let html = story.page(3, String::new(), Vec::new(), None).render();
    assert!(html.contains("Every promise held for") && html.contains("answered: revision"));
    assert!(!html.contains("Before it broke"));
}
