"""Text with markup: taken apart for translation, and put together again with every tag in place."""
