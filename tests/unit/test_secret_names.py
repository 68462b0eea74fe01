"""Which names are names of secrets: one table for lint, plan and the log."""

from __future__ import annotations

import pytest

from kimi_serve.launcher.secrets.names import is_next_flag, is_secret_flag, is_secret_name
from kimi_serve.schemas.engine_facts import engine_table, engines

SECRET = [
    *("api_key", "apiKey", "API_KEY", "OPENAI_APIKEY", "key", "--api-key", "private_key"),
    *("HF_TOKEN", "token", "accessToken", "hf-token", "SLACK_TOKEN_2", "bearer_token"),
    *("DB_PASSWORD", "DB_PWD", "passwd", "passphrase", "pass", "MYSQL_PASS", "PGPASSWORD"),
    *("ssl_keyfile_password", "--ssl-keyfile-password", "AWS_SECRET_ACCESS_KEY", "clientSecret"),
    *("credentials", "AUTH", "Authorization", "--auth-token", "server.api_key", "server__api_key"),
]
PLAIN = [
    *("--max-total-tokens", "tokenizer_path", "--tokenizer-worker-num", "tokens", "max_tokens"),
    *("SGLANG_MAX_THINK_TOKENS", "VLLM_MAX_TOKENS_PER_EXPERT_FP4_MOE", "skip_special_tokens"),
    *(
        "TOKENIZERS_PARALLELISM",
        "image_token_id",
        "eos_token",
        "--kt-max-deferred-experts-per-token",
    ),
    *("--speculative-token-map", "--enable-forward-pass-metrics", "--allow-credentials"),
    *("keyfile", "ssl_keyfile", "--ssl-keyfile", "ssl_certfile", "KEYBOARD", "monkey", "PWD"),
    *("compass", "--trust-remote-code", "author", "passes", "worker_num", "secretary"),
]


@pytest.mark.parametrize("name", SECRET)
def test_a_name_of_a_secret(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize("name", PLAIN)
def test_another_name(name: str) -> None:
    assert not is_secret_name(name)
    assert not is_secret_flag(name)


@pytest.mark.parametrize("engine", engines())
def test_the_secrets_of_an_engine_and_no_other_of_its_names(engine: str) -> None:
    table = engine_table(engine)
    assert table is not None
    names = [*table.by_spelling, *table.environment]
    found = {name for name in names if is_secret_name(name) or is_secret_flag(name)}
    expected = {
        "sglang": {
            *("--api-key", "--admin-api-key", "--ssl-keyfile-password", "EXA_API_KEY"),
            *("SGLANG_PRECISION_HF_TOKEN", "SGLANG_DIFFUSION_SLACK_TOKEN"),
            *("SGLANG_S3_ACCESS_KEY_ID", "SGLANG_S3_SECRET_ACCESS_KEY"),
        },
        "vllm": {
            *("--api-key", "--hf-token", "VLLM_API_KEY"),
            *("S3_ACCESS_KEY_ID", "S3_SECRET_ACCESS_KEY"),
        },
    }
    assert found == expected[engine]
    marked = {name for name in table.environment if (fact := table.env(name)) and fact.secret}
    assert marked <= found


@pytest.mark.parametrize(
    ("flag", "is_secret"),
    [
        ("--api-ke", True),
        ("--api_key", True),
        ("\u2013-api-key", True),
        ("--ssl-keyfile-pass", True),
        ("--ssl-keyfile", False),
        ("--tp", False),
        ("api-key", False),
    ],
)
def test_flags_are_abbreviated(flag: str, is_secret: bool) -> None:
    assert is_secret_flag(flag) is is_secret


def test_what_is_taken_for_the_next_flag() -> None:
    assert is_next_flag("--tp")
    assert is_next_flag("-tp")
    assert not is_next_flag("-hunter2")
    assert not is_next_flag("--Xy7secret")
