//! Room `tests`: the schemas, compiled from `proto/proto/**/*.proto` at run time, and the table of methods.
//! May touch the schema files; must not use generated code, so that a wrong build of it shows.

use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor, MethodDescriptor};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// All methods a script may call, by short name (`Put`) or by `Service.Method` where that is ambiguous.
#[derive(Clone)]
pub struct Schema {
    methods: BTreeMap<String, MethodDescriptor>,
}

impl Schema {
    /// Compiles every schema of room `proto`, and this room's own (the health service).
    ///
    /// # Errors
    /// The text of the compiler's error, or of a directory that cannot be read.
    pub fn load() -> Result<Self, String> {
        let room = Path::new(env!("CARGO_MANIFEST_DIR"));
        let roots = [room.join("../proto/proto"), room.join("proto")];
        let mut files = Vec::new();
        for root in &roots {
            proto_files(root, &mut files).map_err(|e| format!("{}: {e}", root.display()))?;
        }
        let set = protox::compile(&files, &roots).map_err(|e| format!("schemas: {e}"))?;
        let pool = DescriptorPool::from_file_descriptor_set(set).map_err(|e| e.to_string())?;
        Ok(Self {
            methods: methods(&pool),
        })
    }

    /// The method called `name`.
    ///
    /// # Errors
    /// A sentence naming the method when it is not in the schemas.
    pub fn method(&self, name: &str) -> Result<MethodDescriptor, String> {
        self.methods
            .get(name)
            .cloned()
            .ok_or_else(|| format!("no method {name} in the schemas"))
    }

    /// Reads a request of `descriptor` written in protobuf text format.
    ///
    /// # Errors
    /// The parser's sentence.
    pub fn request(descriptor: MessageDescriptor, text: &str) -> Result<DynamicMessage, String> {
        DynamicMessage::parse_text_format(descriptor, text).map_err(|e| format!("{e}: in {text:?}"))
    }
}

/// The HTTP/2 path of a method: `/package.Service/Method`.
#[must_use]
pub fn path(method: &MethodDescriptor) -> String {
    format!("/{}/{}", method.parent_service().full_name(), method.name())
}

fn methods(pool: &DescriptorPool) -> BTreeMap<String, MethodDescriptor> {
    let mut short: BTreeMap<String, Vec<MethodDescriptor>> = BTreeMap::new();
    let mut table = BTreeMap::new();
    for service in pool.services() {
        for method in service.methods() {
            table.insert(
                format!("{}.{}", service.name(), method.name()),
                method.clone(),
            );
            short
                .entry(method.name().to_owned())
                .or_default()
                .push(method);
        }
    }
    for (name, mut found) in short {
        // etcd's API wins over the small services beside it (health also has a `Watch`).
        if found.len() > 1 {
            found.retain(|m| m.parent_service().package_name() == "etcdserverpb");
        }
        if let [only] = found.as_slice() {
            table.insert(name, only.clone());
        }
    }
    table
}

fn proto_files(root: &Path, found: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(root)? {
        let path = entry?.path();
        if path.is_dir() {
            proto_files(&path, found)?;
        } else if path.extension().is_some_and(|e| e == "proto") {
            found.push(path);
        }
    }
    found.sort();
    Ok(())
}
