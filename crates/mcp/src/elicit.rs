//! Questions of a server to the user, during a call.

use rmcp::{
    RoleClient,
    model::{ElicitRequestParams, ElicitResult, ElicitationAction, ErrorData},
    service::RequestContext,
};
use superstep_llm::calls::{ToolAnswer, ToolQuestion};

use crate::notifications::{CallListeners, QuestionOrigin};

/// The maximum size of a question, message and schema together, in bytes: a user must be able to see all of
/// it.
const MAX_QUESTION_BYTES: usize = 16 << 10;

/// The error that a server receives if its question belongs to one of several calls.
const WHOSE: &str = "several calls run, and the protocol does not tell which of them asks; from now on \
                     calls are sent to this server one at a time, so send this again with its call";

impl CallListeners {
    /// Asks the user of the call, and waits for the answer or the end of the call.
    pub(crate) async fn elicit(
        &self,
        request: ElicitRequestParams,
        context: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        let (message, asked) = self.question(request);
        let declined = |why: &str| {
            self.warn(format!("the server asks the user, which is declined ({why}): {message}"));
            Ok(ElicitResult::new(ElicitationAction::Decline))
        };
        let question = match asked {
            Ok(question) => question,
            Err(why) => return declined(&why),
        };
        let (cx, over) = match self.asking() {
            QuestionOrigin::Call(cx, over) => (cx, over),
            QuestionOrigin::NoCall => return declined("no call runs"),
            QuestionOrigin::Several => return Err(ErrorData::internal_error(WHOSE, None)),
        };
        let answer = tokio::select! {
            biased;
            answer = cx.ask(question) => answer,
            // The call ended with the question, or before it.
            () = over.cancelled() => Ok(ToolAnswer::Cancel),
            () = context.ct.cancelled() => Ok(ToolAnswer::Cancel),
        };
        match answer {
            Ok(ToolAnswer::Accept(values)) => {
                Ok(ElicitResult::new(ElicitationAction::Accept).with_content(values))
            }
            Ok(ToolAnswer::Decline) => Ok(ElicitResult::new(ElicitationAction::Decline)),
            Ok(ToolAnswer::Cancel) => Ok(ElicitResult::new(ElicitationAction::Cancel)),
            Err(why) => declined(&why.to_string()),
        }
    }

    /// Returns the author and the question, or the reason why it cannot be put to the user.
    fn question(&self, request: ElicitRequestParams) -> (String, Result<ToolQuestion, String>) {
        match request {
            ElicitRequestParams::FormElicitationParams { message, requested_schema, .. } => {
                let schema = serde_json::to_value(requested_schema).expect("it was JSON");
                let size = message.len() + schema.to_string().len();
                let from = format!("MCP server `{}`", self.server());
                let shown = self.notifications().without_variables(message.clone());
                let question = ToolQuestion { from, message: shown, schema };
                let too_large = format!("it has {size} bytes, of {MAX_QUESTION_BYTES} at most");
                (message, if size > MAX_QUESTION_BYTES { Err(too_large) } else { Ok(question) })
            }
            ElicitRequestParams::UrlElicitationParams { message, .. } => {
                (message, Err("it wants a web page visited, which is not supported".to_owned()))
            }
            _ => (String::new(), Err("it is of a kind that is not supported".to_owned())),
        }
    }
}
