"""Values and contracts: dtypes, shapes, device specs, attrs, the op registry, the kernel and device protocols."""
