//! One file for each dialect; all end in the two jobs of [`crate::job`].
