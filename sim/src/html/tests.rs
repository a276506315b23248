//! Room `sim`, page: what it must contain.

use super::*;
use crate::disk::CrashMode;
use crate::sim::Sim;
use crate::{Role, What};
use std::time::Duration;

fn call(number: usize, begun: u64, answer: &str) -> Shown {
    Shown {
        name: format!("CallId({number})"),
        client: "client 1001".to_owned(),
        what: "put <k> = \"v\"".to_owned(),
        begun,
        ended: Some(begun + 5_000_000),
        how: Ended::Answered(answer.to_owned()),
    }
}

fn page(violation: Option<&str>) -> Page {
    let sim = Sim::new(3);
    let step = || sim.run_for(Duration::from_millis(500)).unwrap();
    sim.node(1);
    sim.node(2);
    sim.tell(What::Role(NodeId(1), Role::Leader, 4));
    step();
    sim.cut_one_way(2, 1);
    sim.pause(2);
    step();
    sim.mend(1, 2);
    sim.clog(1, 2, Duration::from_millis(300));
    sim.resume(2);
    sim.jump(1, Duration::from_secs(9));
    sim.kill(1, CrashMode::Torn);
    step();
    Page {
        seed: 3,
        replay: "tenon sim --seed 3".to_owned(),
        facts: vec![("clients".to_owned(), "1".to_owned())],
        members: vec![NodeId(1), NodeId(2)],
        chronicle: sim.chronicle(),
        calls: vec![
            call(1, 1_000_000, "revision 7"),
            call(12, 2_000_000, "revision 71"),
        ],
        end: sim.now().as_nanos() as u64,
        violation: violation.map(str::to_owned),
    }
}

#[test]
fn a_page_stands_alone_and_is_well_formed() {
    let html = page(Some("revision 7 was <lost>")).render();
    for foreign in ["http:", "https:", "src=", "href=", "@import", "url("] {
        assert!(!html.contains(foreign), "{foreign}");
    }
    for tag in [
        "div", "span", "table", "tr", "td", "dl", "p", "script", "style", "i",
    ] {
        let open =
            html.matches(&format!("<{tag}>")).count() + html.matches(&format!("<{tag} ")).count();
        assert_eq!(open, html.matches(&format!("</{tag}>")).count(), "{tag}");
    }
    assert!(html.contains("put &lt;k&gt; = &quot;v&quot;") && !html.contains("<k>"));
}

#[test]
fn a_page_shows_lives_roles_faults_and_calls() {
    let html = page(None).render();
    for wanted in [
        "Every promise held for 1.500 simulated seconds",
        "bar leader\" style=\"left:0.0000%;width:65.3333%\"",
        ">T4</span>",
        "leads in term 4",
        "killed; its disk: Torn",
        "bar down\" style=\"left:65.3333%;width:32.6667%\"",
        "bar paused\" style=\"left:32.6667%;width:32.6667%\"",
        "bar cut back\" style=\"left:32.6667%;width:32.6667%\"",
        "bar clog\" style=\"left:65.3333%;width:19.6000%\"",
        "clock: jump forward by 9s",
        "1 ⇄ 2",
        "client 1001",
        "tenon sim --seed 3",
        "clock jump × 1, clog × 1, cut × 1, election × 1, pause × 1, torn power cut × 1",
    ] {
        assert!(html.contains(wanted), "no {wanted}");
    }
    assert!(!html.contains("Before it broke"));
}

#[test]
fn a_page_points_at_what_the_violation_names() {
    let named = |violation: &str| {
        let page = page(Some(violation));
        let named: Vec<bool> = page.calls.iter().map(|c| page.is_named(c)).collect();
        (named[0], named[1])
    };
    assert_eq!(named("revision 7 was changed"), (true, false));
    assert_eq!(named("revision 71 was changed"), (false, true));
    assert_eq!(named("CallId(12) took effect twice"), (false, true));
    assert_eq!(
        named("Call { invoked: 1000000, floor: 3 } went back"),
        (true, false)
    );
    assert_eq!(named("Call { } went back behind 71"), (false, true));
    assert_eq!(named("a watcher never ends"), (false, false));
    let html = page(Some("CallId(12) took effect twice")).render();
    assert!(html.contains("A promise was broken at 0.007 s (red line); the run ended at 1.500 s."));
    assert!(html.contains("Before it broke") && html.contains("class=\"end\""));
    assert_eq!(html.matches("bar ok named").count(), 1);
}
