//! A recorded day, played again with changes: what its tail would have been.
