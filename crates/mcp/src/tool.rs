//! One tool of a server.

use std::sync::Arc;

use rmcp::{
    ServiceError,
    model::{CallToolRequestParams, Tool as RemoteTool, ToolAnnotations},
};
use serde_json::Value;
use superstep_llm::{Behaviour, Tool, ToolCx, ToolError, ToolFuture, ToolReply, ToolSpec};
use tokio::time::sleep;

use crate::{Ask, content, server::Link};

/// The most characters of a description that a model is told.
const LONGEST_DESCRIPTION: usize = 8_000;

pub(crate) struct McpTool {
    link: Arc<Link>,
    spec: ToolSpec,
    /// The server's own name for it.
    name: String,
    hints: ToolAnnotations,
}

impl McpTool {
    pub(crate) fn new(link: Arc<Link>, tool: &RemoteTool, name: String) -> Self {
        let description = tool.description.as_deref().or(tool.title.as_deref()).unwrap_or_default();
        let spec = ToolSpec {
            name,
            description: description.chars().take(LONGEST_DESCRIPTION).collect(),
            parameters: Value::Object((*tool.input_schema).clone()),
        };
        Self { link, spec, name: tool.name.to_string(), hints: tool.annotations.clone().unwrap_or_default() }
    }

    fn only_reads(&self) -> bool {
        self.hints.read_only_hint == Some(true)
    }

    async fn run(&self, args: Value, cx: &ToolCx) -> Result<String, ToolError> {
        let server = &self.link.name;
        let connection = self.link.connection().await.map_err(|problem| {
            ToolError::failed(format!("the MCP server `{server}` cannot be reached: {problem}"))
        })?;
        let mut params = CallToolRequestParams::new(self.name.clone());
        if let Value::Object(args) = args {
            params = params.with_arguments(args);
        }
        // Dropped before it is over, a call is cancelled at the server, too.
        let limit = self.link.config.call_timeout;
        let result = tokio::select! {
            biased;
            () = cx.cancel.cancelled() => return Err(ToolError::failed("cancelled")),
            result = connection.call_tool(params) => result,
            () = sleep(limit) => {
                let ms = limit.as_millis();
                return Err(ToolError::failed(format!("the MCP server `{server}` did not answer in {ms} ms")));
            }
        };
        match result {
            Ok(result) => content::text(result),
            Err(ServiceError::McpError(error)) => Err(ToolError::failed(error.message.into_owned())),
            Err(ServiceError::TransportClosed | ServiceError::TransportSend(_)) => {
                Err(ToolError::failed(format!(
                    "the MCP server `{server}` was lost during this call, so nobody knows what came of it; the next \
                     call starts it again"
                )))
            }
            Err(error) => Err(ToolError::failed(error.to_string())),
        }
    }
}

impl Tool for McpTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn behaviour(&self) -> Behaviour {
        let idempotent = self.only_reads() || self.hints.idempotent_hint == Some(true);
        Behaviour { idempotent, ..Behaviour::default() }
    }

    fn approval(&self, args: &Value) -> Option<String> {
        let asks = match self.link.config.ask {
            Ask::Always => true,
            Ask::Writes => !self.only_reads(),
            Ask::Never => false,
        };
        asks.then(|| format!("Call {} of the MCP server `{}` with {args}?", self.name, self.link.name))
    }

    fn call(&self, args: Value, cx: ToolCx) -> ToolFuture<'_> {
        Box::pin(async move { self.run(args, &cx).await.map(ToolReply::from) })
    }
}
