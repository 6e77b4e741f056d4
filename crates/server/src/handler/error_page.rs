//! The small bodies of error answers.
