"""ONNX: export of a bundle, and translating from the exported files."""
