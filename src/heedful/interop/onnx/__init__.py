"""ONNX: export a bundle, and translate from the exported files."""
