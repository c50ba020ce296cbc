"""What things cost: one module per ``grid bench`` case, each with a peer or a calibration loop in the same run."""
