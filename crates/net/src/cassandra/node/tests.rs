//! A fake node that does what real ones cannot be made to do.
