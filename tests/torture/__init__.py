"""`make torture`: bad inputs, kill -9, two commands at once and full disks, for as long as one likes; failures can be repeated."""
