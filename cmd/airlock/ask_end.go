package main

import (
	"context"
	"errors"
	"io"
	"net/http"
)

// whyUnavailable asks for a sandbox directly, which is told the reason; a result block only says that there was none.
func (c *client) whyUnavailable(ctx context.Context, container string) error {
	if container == "" {
		var made struct {
			ID string `json:"id"`
		}
		if err := c.call(ctx, http.MethodPost, "/airlock/v1/containers", map[string]any{}, &made); err != nil {
			return err
		}
		container = made.ID
		// A container that stays expires by itself.
		defer func() { _ = c.call(ctx, http.MethodDelete, containerPath(container), nil, nil) }()
	}
	if _, err := c.exec(ctx, container, execRequest{Argv: []string{"true"}}, io.Discard, io.Discard); err != nil {
		return err
	}
	return errors.New("the server had no sandbox; it has one now, and its log says why")
}
