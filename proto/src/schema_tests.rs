//! Room proto: the schemas against `schema.txt`, their reviewed listing. Names, numbers and types are
//! etcd's wire interface and our disk format, so a change must be seen as a line of a diff.

use crate::FILE_DESCRIPTOR_SET;
use crate::command::{Command, CommandBatch, command::Body};
use crate::etcdserverpb::PutRequest;
use crate::log::{Entry, LogId, entry::Payload};
use prost::Message;
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{DescriptorProto, EnumDescriptorProto, FileDescriptorProto, FileDescriptorSet};

const REVIEWED: &str = include_str!("../schema.txt");

fn list_enum(lines: &mut Vec<String>, within: &str, item: &EnumDescriptorProto) {
    for value in &item.value {
        lines.push(format!(
            "{within}.{}.{} = {}",
            item.name(),
            value.name(),
            value.number()
        ));
    }
}

fn list_message(lines: &mut Vec<String>, within: &str, item: &DescriptorProto) {
    let path = format!("{within}.{}", item.name());
    lines.push(format!("message {path}"));
    for field in &item.field {
        let repeated = if field.label() == Label::Repeated {
            "repeated "
        } else {
            ""
        };
        let kind = match field.r#type() {
            Type::Message | Type::Enum => field.type_name().trim_start_matches('.').to_owned(),
            kind => kind
                .as_str_name()
                .trim_start_matches("TYPE_")
                .to_lowercase(),
        };
        let oneof = field.oneof_index.map_or(String::new(), |index| {
            format!(
                " in {}",
                item.oneof_decl[usize::try_from(index).expect("an index")].name()
            )
        });
        lines.push(format!(
            "{path}.{} = {} {repeated}{kind}{oneof}",
            field.name(),
            field.number()
        ));
    }
    item.enum_type
        .iter()
        .for_each(|inner| list_enum(lines, &path, inner));
    item.nested_type
        .iter()
        .for_each(|inner| list_message(lines, &path, inner));
}

fn list_file(file: &FileDescriptorProto) -> Vec<String> {
    let mut lines = Vec::new();
    let package = file.package();
    for service in &file.service {
        for method in &service.method {
            let stream = |yes: bool| if yes { "stream " } else { "" };
            lines.push(format!(
                "rpc {package}.{}.{}({}{}) -> {}{}",
                service.name(),
                method.name(),
                stream(method.client_streaming()),
                method.input_type().trim_start_matches('.'),
                stream(method.server_streaming()),
                method.output_type().trim_start_matches('.'),
            ));
        }
    }
    file.message_type
        .iter()
        .for_each(|item| list_message(&mut lines, package, item));
    file.enum_type
        .iter()
        .for_each(|item| list_enum(&mut lines, package, item));
    lines
}

#[test]
fn the_schemas_are_the_reviewed_ones() {
    let set = FileDescriptorSet::decode(FILE_DESCRIPTOR_SET).expect("written by build.rs");
    let mut files: Vec<_> = set.file.iter().collect();
    files.sort_by_key(|file| file.name().to_owned());
    let lines: Vec<String> = files.into_iter().flat_map(list_file).collect();
    let reviewed: Vec<&str> = REVIEWED.lines().collect();
    let gone: Vec<_> = reviewed
        .iter()
        .filter(|line| !lines.iter().any(|l| l == *line))
        .collect();
    let new: Vec<_> = lines
        .iter()
        .filter(|line| !reviewed.contains(&line.as_str()))
        .collect();
    assert!(
        lines == reviewed,
        "proto/schema.txt differs. A line that goes or changes breaks old disks, peers or clients.\n\
         gone: {gone:#?}\nnew: {new:#?}\n{}",
        lines.join("\n"),
    );
}

/// The bytes of one entry as they lie in the log, so that another encoder cannot slip in unseen.
#[test]
fn an_entry_has_these_bytes() {
    let put = PutRequest {
        key: "k".into(),
        value: "v".into(),
        ..PutRequest::default()
    };
    let command = Command {
        origin: 7,
        body: Some(Body::from(put)),
        ..Command::default()
    };
    let entry = Entry {
        id: Some(LogId {
            term: 2,
            node_id: 7,
            index: 300,
        }),
        payload: Some(Payload::Batch(CommandBatch {
            commands: vec![command],
        })),
    };
    let bytes = entry.encode_to_vec();
    let expected: &[u8] = b"\x0a\x07\x08\x02\x10\x07\x18\xac\x02\
        \x1a\x0d\x0a\x0b\x18\x07\x82\x01\x06\x0a\x01k\x12\x01v";
    assert_eq!(bytes, expected);
    assert_eq!(Entry::decode(bytes.as_slice()), Ok(entry));
}
