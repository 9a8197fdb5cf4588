"""Parameters from measurements: few-parameter physical forms, fitted with priors that say what GPUs are like."""
