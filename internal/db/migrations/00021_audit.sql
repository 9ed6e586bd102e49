-- +goose Up
CREATE TABLE audit (
    id         TEXT PRIMARY KEY,
    at         BIGINT NOT NULL,
    level      TEXT NOT NULL,
    app_id     TEXT NOT NULL,
    user_id    TEXT NOT NULL,
    request_id TEXT NOT NULL,
    event      TEXT NOT NULL,
    detail     TEXT NOT NULL,
    count      BIGINT NOT NULL
);
CREATE INDEX audit_by_time ON audit (at, id);
CREATE INDEX audit_by_app ON audit (app_id, at, id);
