//! The headers of a record that was consumed, as they are: a name may be any bytes without NUL, and a value may be null. The
//! client's own wrapper ends the process on a name that is not UTF-8.

use rdkafka::message::BorrowedMessage;
use rdkafka_sys as sys;
use std::ffi::CStr;
use std::ptr;

/// Hands over each header of a record, in order: its name and its value.
pub fn each_header(message: &BorrowedMessage<'_>, mut each: impl FnMut(&[u8], Option<&[u8]>)) {
    let mut headers = ptr::null_mut();
    // SAFETY: the message is held by the caller and so are its headers, which are written to our own place.
    let answer = unsafe { sys::rd_kafka_message_headers(message.ptr(), &raw mut headers) };
    if answer != sys::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR {
        return;
    }
    // SAFETY: they live as long as the message.
    let count = unsafe { sys::rd_kafka_header_cnt(headers) };
    for index in 0..count {
        let (mut name, mut value, mut size) = (ptr::null(), ptr::null(), 0);
        // SAFETY: as above; the places are our own.
        let answer =
            unsafe { sys::rd_kafka_header_get_all(headers, index, &raw mut name, &raw mut value, &raw mut size) };
        if answer != sys::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR {
            return;
        }
        // SAFETY: a name ends with NUL; a value that is not null has as many bytes as said. Both live as long as the
        // message.
        let (name, value) = unsafe {
            let value = (!value.is_null()).then(|| std::slice::from_raw_parts(value.cast::<u8>(), size));
            (CStr::from_ptr(name).to_bytes(), value)
        };
        each(name, value);
    }
}
