"""CTranslate2: its model directories in and out, and Argos packages, which contain one."""
