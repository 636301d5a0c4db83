mod faults;
mod memory;
mod same_bytes;
