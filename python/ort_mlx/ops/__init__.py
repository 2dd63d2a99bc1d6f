"""The operators, one module a family. The registry imports every module in this folder."""
