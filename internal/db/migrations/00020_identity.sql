-- +goose Up
ALTER TABLE apps ADD COLUMN owner_issuer TEXT NOT NULL DEFAULT 'airlock';
ALTER TABLE apps ADD COLUMN owner_sub TEXT NOT NULL DEFAULT 'owner';
ALTER TABLE apps ADD COLUMN require_token_app_binding BOOLEAN NOT NULL DEFAULT FALSE;
ALTER TABLE apps ADD COLUMN origin TEXT NOT NULL DEFAULT '';
ALTER TABLE apps ADD COLUMN allowed_models TEXT NOT NULL DEFAULT '';
-- Until when some token or identity of the app may be in somebody's hands; 0 = none was made.
ALTER TABLE apps ADD COLUMN token_until BIGINT NOT NULL DEFAULT 0;

-- Which identity tokens of an app count. The tokens themselves are computed.
CREATE TABLE app_identities (
    app_id     TEXT NOT NULL REFERENCES apps (id),
    gen        BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    ends_at    BIGINT,
    PRIMARY KEY (app_id, gen)
);
INSERT INTO app_identities (app_id, gen, created_at) SELECT id, 1, created_at FROM apps;

CREATE TABLE signing_keys (
    kid        TEXT PRIMARY KEY,
    private    TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    ends_at    BIGINT
);

-- Subjects that were seen. app_id '' is the subject in every app.
CREATE TABLE users (
    id         TEXT PRIMARY KEY,
    app_id     TEXT NOT NULL,
    issuer     TEXT NOT NULL,
    sub        TEXT NOT NULL,
    first_seen BIGINT NOT NULL,
    blocked_at BIGINT,
    UNIQUE (app_id, issuer, sub)
);
CREATE INDEX users_by_subject ON users (issuer, sub);
CREATE INDEX users_by_time ON users (first_seen, id);
CREATE INDEX users_by_app ON users (app_id, first_seen, id);

CREATE TABLE revoked_tokens (
    id    TEXT PRIMARY KEY,
    until BIGINT NOT NULL
);
CREATE INDEX revoked_tokens_by_end ON revoked_tokens (until);

-- An id stays with its issuer for good: stored owners name it. settings is '' once the issuer is removed, and for those
-- of the settings file.
CREATE TABLE issuers (
    id         TEXT PRIMARY KEY,
    issuer     TEXT NOT NULL,
    settings   TEXT NOT NULL,
    created_at BIGINT NOT NULL
);

-- What differs from the defaults. user_id '' is the app itself.
CREATE TABLE limits (
    app_id   TEXT NOT NULL REFERENCES apps (id),
    user_id  TEXT NOT NULL,
    messages BIGINT NOT NULL,
    requests BIGINT NOT NULL,
    PRIMARY KEY (app_id, user_id)
);
