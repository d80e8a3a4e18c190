//! The tail of a topic.
