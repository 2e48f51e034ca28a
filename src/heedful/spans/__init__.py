"""Text with marks: segments, placeholders, projection, and the pipeline that translates them."""
