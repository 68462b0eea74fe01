"""From a chat to token ids: template, tokenizer, placeholders."""
