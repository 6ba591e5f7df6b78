//! Clusters that fake nodes tell of.
