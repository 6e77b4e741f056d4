//! Record formats (VARIABLE, VFC) turned into streams of lines.
