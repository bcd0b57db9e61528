"""The tables that answer questions: one file a question, labels with units only here."""
