//! The tools of an agent, by name.

use std::{
    collections::BTreeMap,
    fmt, io,
    path::Path,
    sync::{Arc, OnceLock},
};

use serde_json::Value;

use crate::{
    Tool,
    shared::IntoShared,
    tools::{
        arguments::{ArgumentCheck, ToolCallError},
        tool::{MAX_TOOL_NAME_LENGTH, ToolSpecs, is_tool_name},
    },
};

/// Tools by name, each with its compiled argument schema, in name order.
#[derive(Clone, Default)]
pub struct ToolRegistry {
    tools: BTreeMap<String, Registered>,
    /// The specifications, once they were needed.
    specs: OnceLock<ToolSpecs>,
}

#[derive(Clone)]
struct Registered {
    tool: Arc<dyn Tool>,
    check: Arc<ArgumentCheck>,
    /// The tool's specification as JSON, once it was needed.
    json: Arc<OnceLock<String>>,
}

/// The error of a tool that cannot be registered.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RegistryError {
    /// Another tool has the same name.
    #[error("two tools are named `{name}`; rename one")]
    Duplicate {
        /// The name.
        name: String,
    },
    /// The tool has no name, or an invalid one.
    #[error(
        "invalid tool name `{name}`; providers accept 1 to {MAX_TOOL_NAME_LENGTH} of the characters a-z, A-Z, \
         0-9, _ and -"
    )]
    Name {
        /// The name.
        name: String,
    },
    /// The argument schema is invalid.
    #[error("tool `{name}`: its argument schema {detail}")]
    Schema {
        /// The tool.
        name: String,
        /// The problem.
        detail: String,
    },
}

crate::debug_by_chain!(RegistryError);

impl ToolRegistry {
    /// Creates an empty registry.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a tool and compiles its schema.
    ///
    /// # Errors
    /// [`RegistryError`] if the name is taken or invalid, or the schema is invalid; the registry is then
    /// unchanged.
    pub fn insert(&mut self, tool: impl IntoShared<dyn Tool>) -> Result<(), RegistryError> {
        let tool = tool.into_shared();
        let spec = tool.spec();
        let name = spec.name.clone();
        if !is_tool_name(&name) {
            return Err(RegistryError::Name { name });
        }
        if self.tools.contains_key(&name) {
            return Err(RegistryError::Duplicate { name });
        }
        match ArgumentCheck::new(spec) {
            Ok(check) => {
                let registered = Registered { tool, check: Arc::new(check), json: Arc::default() };
                self.tools_mut().insert(name, registered);
                Ok(())
            }
            Err(detail) => Err(RegistryError::Schema { name, detail }),
        }
    }

    /// Adds all tools of another registry whose names are free in this one.
    pub fn add_missing(&mut self, other: &Self) {
        for (name, registered) in &other.tools {
            self.tools_mut().entry(name.clone()).or_insert_with(|| registered.clone());
        }
    }

    /// Removes the tool named `name`, if there is one.
    pub fn remove(&mut self, name: &str) {
        self.tools_mut().remove(name);
    }

    /// Binds the tools that work in a folder to this one: see [`Tool::in_folder`].
    ///
    /// # Errors
    /// The first error of a tool that cannot use the folder.
    pub fn in_folder(&self, folder: &Path) -> io::Result<Self> {
        let mut moved = self.clone();
        for registered in moved.tools_mut().values_mut() {
            if let Some(tool) = registered.tool.in_folder(folder)? {
                (registered.tool, registered.json) = (tool, Arc::default());
            }
        }
        Ok(moved)
    }

    /// Returns the tool named `name`.
    pub fn get(&self, name: &str) -> Option<&Arc<dyn Tool>> {
        self.tools.get(name).map(|registered| &registered.tool)
    }

    /// Parses `text` as arguments of the tool `name`; `None` if the tool does not exist.
    pub fn check(&self, name: &str, text: &str) -> Option<Result<Value, ToolCallError>> {
        self.tools.get(name).map(|registered| registered.check.check(text))
    }

    /// Returns the specs for the model, in name order. They are copied once, also for copies of the registry.
    pub fn specs(&self) -> ToolSpecs {
        let specs = || self.tools.values().map(|registered| registered.tool.spec().clone()).collect();
        self.specs.get_or_init(specs).clone()
    }

    /// Returns the tools for a change.
    fn tools_mut(&mut self) -> &mut BTreeMap<String, Registered> {
        self.specs = OnceLock::new();
        &mut self.tools
    }

    /// Returns the specification of the tool named `name` as JSON. It is serialized once, also for copies of the registry.
    pub fn spec_json(&self, name: &str) -> Option<&str> {
        let Registered { tool, json, .. } = self.tools.get(name)?;
        Some(json.get_or_init(|| serde_json::to_string(tool.spec()).expect("what is sent has a JSON form")))
    }

    /// Returns the names, sorted.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.tools.keys().map(String::as_str)
    }

    /// Returns the number of tools.
    pub fn len(&self) -> usize {
        self.tools.len()
    }

    /// Returns whether there are no tools.
    pub fn is_empty(&self) -> bool {
        self.tools.is_empty()
    }
}

impl fmt::Debug for ToolRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.tools.keys()).finish()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{ToolCx, ToolSpec, tool_fn};

    fn tool(name: &str, parameters: Value) -> Arc<dyn Tool> {
        let spec = ToolSpec { name: name.into(), description: String::new(), parameters };
        Arc::new(tool_fn(spec, |args: Value, _cx: ToolCx| async move { Ok(args.to_string()) }))
    }

    fn object() -> Value {
        json!({"type": "object", "required": ["x"]})
    }

    #[test]
    fn tools_stand_in_the_order_of_their_names() {
        let mut tools = ToolRegistry::new();
        for name in ["echo", "add", "slow"] {
            tools.insert(tool(name, object())).unwrap();
        }
        assert_eq!(tools.names().collect::<Vec<_>>(), ["add", "echo", "slow"]);
        assert_eq!(
            tools.specs().iter().map(|spec| spec.name.as_str()).collect::<Vec<_>>(),
            ["add", "echo", "slow"]
        );
        assert!(tools.get("nope").is_none());
        assert_eq!(tools.check("nope", "{}"), None);
        assert_eq!(tools.check("add", r#"{"x":1}"#), Some(Ok(json!({"x": 1}))));
        assert_eq!(tools.check("add", "{}").unwrap().unwrap_err().to_string(), "`x` is missing");
    }

    #[test]
    fn a_name_is_given_once() {
        let mut tools = ToolRegistry::new();
        tools.insert(tool("add", object())).unwrap();
        assert_eq!(tools.insert(tool("add", object())), Err(RegistryError::Duplicate { name: "add".into() }));
        for none in ["", "a b", "fs.read", "größe", &"a".repeat(65)] {
            assert_eq!(tools.insert(tool(none, object())), Err(RegistryError::Name { name: none.into() }));
        }
        assert_eq!(tools.len(), 1);
    }

    #[test]
    fn tools_are_added_where_their_names_are_free() {
        let (mut tools, mut more) = (ToolRegistry::new(), ToolRegistry::new());
        tools.insert(tool("add", object())).unwrap();
        for name in ["add", "echo", "slow"] {
            more.insert(tool(name, json!({"type": "object"}))).unwrap();
        }
        tools.add_missing(&more);
        tools.remove("slow");
        assert_eq!(tools.names().collect::<Vec<_>>(), ["add", "echo"]);
        assert_eq!(tools.get("add").unwrap().spec().parameters, object());
    }

    #[test]
    fn a_schema_of_something_else_than_fields_is_refused() {
        let error = ToolRegistry::new().insert(tool("add", json!({"type": "string"}))).unwrap_err();
        assert_eq!(
            error.to_string(),
            "tool `add`: its argument schema does not have `\"type\": \"object\"`; arguments are named fields"
        );
    }
}
