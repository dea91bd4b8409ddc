//! The login: a token that etcd gives for user and password, and that requests name.

use super::{
    super::{
        errors::{CallError, DriverError},
        rows::messages::{AuthenticateRequest, AuthenticateResponse},
    },
    Address, OpenError,
    session::Session,
};
use crate::drivers::password;
use http::HeaderValue;
use tokio::sync::Mutex;

const AUTHENTICATE: &str = "/etcdserverpb.Auth/Authenticate";

/// The token of one member: members forget the tokens that they are not shown, each by itself. While one
/// request logs in, the others wait: a login is costly for the member.
#[derive(Default)]
pub(super) struct Token(Mutex<Option<HeaderValue>>);

impl Token {
    /// Returns the token for the next request; `None` if the URL has no user. Logs in if there is none.
    ///
    /// # Cancel safety
    /// Dropped, the session has to be dropped with it.
    pub(super) async fn get(
        &self,
        session: &mut Session,
        address: &Address,
    ) -> Result<Option<HeaderValue>, DriverError> {
        let Some(user) = &address.user else { return Ok(None) };
        let mut token = self.0.lock().await;
        if token.is_none() {
            *token = Some(log_in(session, address, user).await?);
        }
        Ok(token.clone())
    }

    /// Forgets a token that the member does not accept any more. A request that it has answered so is not
    /// sent again.
    pub(super) async fn forget(&self, used: Option<&HeaderValue>) {
        let mut token = self.0.lock().await;
        if token.as_ref() == used {
            *token = None;
        }
    }
}

/// The password is read anew for each login, so that it can be changed.
async fn log_in(session: &mut Session, address: &Address, user: &str) -> Result<HeaderValue, DriverError> {
    let password = password::password(address.password_file.as_deref())
        .map_err(|(path, cause)| OpenError::PasswordFile { path, cause })?
        .ok_or(OpenError::NoPassword)?;
    let request = AuthenticateRequest { name: user.to_owned(), password };
    let answer = session.call(AUTHENTICATE, None, address.request_timeout, &request).await;
    let AuthenticateResponse { token } = answer.map_err(|error| match error {
        CallError::Status { code: 3 | 9, message } => {
            OpenError::Login { user: user.to_owned(), why: message }
        }
        // Nothing but the login was sent.
        CallError::Status { message: why, .. } | CallError::NotSent(why) | CallError::Broken(why) => {
            OpenError::Request(format!("the login was not answered: {why}"))
        }
    })?;
    let mut token = HeaderValue::try_from(token)
        .map_err(|_| OpenError::Request("the login was answered with a token that is no header".into()))?;
    token.set_sensitive(true);
    Ok(token)
}
