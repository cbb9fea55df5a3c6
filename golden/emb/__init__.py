"""The EMB core's oracle: programs, pooled bags and the cycles they take."""
