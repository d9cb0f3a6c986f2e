"""Studies: compare, calibrate, reproduce, audit."""
