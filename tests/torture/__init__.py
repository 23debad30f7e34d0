"""`make torture`: bad inputs, kill -9, two commands at once and full disks, for a time given; failures can be repeated."""
