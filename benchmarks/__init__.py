"""Speed, as ratios to hand-written floors measured in the same run: `make bench`."""
