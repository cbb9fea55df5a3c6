"""FP32 arithmetic: binary32, round to nearest even, subnormals read and written as zero, one NaN."""
