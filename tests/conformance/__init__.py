"""The conformance runner: what ORT CPU passes has to pass with our provider too."""
