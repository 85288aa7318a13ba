//! Tests of the namespace sandbox from outside: real namespaces, entered in the same way as by the
//! controller.

mod isolation;
mod life;
mod rejections;
mod testkit;
