-- +goose Up
-- The disk has not taken the last changes to the workspace, and the next use is owed the word.
ALTER TABLE containers ADD COLUMN unsaved BOOLEAN NOT NULL DEFAULT FALSE;
