"""From configurations to HTML; knows no MkDocs."""
