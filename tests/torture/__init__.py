"""`make torture`: bad inputs, signals, bombs, hostile files, changed inputs, two at once, full disks; failures repeat."""
