//! Tokens of librdkafka's clients. Its safe binding has a way for them as well, without the
//! extensions that some brokers need.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char};

use rdkafka::bindings as c;
use rdkafka::client::{Client, ClientContext};

use crate::tokens::Token;

/// Gives a client the token of its next logins.
///
/// # Errors
/// What the client does not like about it.
pub fn set_token<C: ClientContext>(
    client: &Client<C>,
    token: &Token,
    extensions: &[(String, String)],
) -> Result<(), String> {
    let no_zeros = |text: &str| CString::new(text).map_err(|_| "it has a zero".to_owned());
    let (text, principal) = (no_zeros(&token.text)?, no_zeros(&token.principal)?);
    let extensions = extensions.iter().flat_map(|(name, value)| [name, value]);
    let extensions: Vec<CString> =
        extensions.map(|text| no_zeros(text)).collect::<Result<_, _>>()?;
    let mut pointers: Vec<*const c_char> = extensions.iter().map(|text| text.as_ptr()).collect();
    let mut problem = [0; 512];
    // SAFETY: all texts end with a zero and outlive the call, which copies them; the client is
    // alive while it is borrowed.
    let code = unsafe {
        c::rd_kafka_oauthbearer_set_token(
            client.native_ptr(),
            text.as_ptr(),
            token.ends_ms,
            principal.as_ptr(),
            pointers.as_mut_ptr(),
            pointers.len(),
            problem.as_mut_ptr(),
            problem.len(),
        )
    };
    if code == c::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR {
        return Ok(());
    }
    // SAFETY: the client has written a text that ends with a zero into the buffer, or nothing.
    let problem = unsafe { CStr::from_ptr(problem.as_ptr()) };
    Err(problem.to_string_lossy().into_owned())
}

/// Tells a client that there is no token, which it reports as an error of its login.
pub fn set_no_token<C: ClientContext>(client: &Client<C>, reason: &str) {
    let reason = CString::new(reason.replace('\0', " ")).expect("zeros are gone");
    // SAFETY: as above.
    unsafe { c::rd_kafka_oauthbearer_set_token_failure(client.native_ptr(), reason.as_ptr()) };
}
