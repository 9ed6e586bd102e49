package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// knownUser is a user as the list shows it: once for each app, and once without an app where it is blocked in all.
type knownUser struct {
	User      string  `json:"user"`
	AppID     *string `json:"app_id"`
	FirstSeen *string `json:"first_seen_at"`
	BlockedAt *string `json:"blocked_at"`
}

// came reports whether the user was there: of one who was blocked ahead of time the block is the first that is known.
func (u knownUser) came() bool {
	return u.AppID != nil && (u.BlockedAt == nil || u.FirstSeen == nil || *u.BlockedAt != *u.FirstSeen)
}

func (c *client) knownAs(ctx context.Context, user string) (rows []knownUser, err error) {
	err = c.list(ctx, withQuery("/airlock/v1/users", "user", user), func(raw json.RawMessage) error {
		var u knownUser
		if err := json.Unmarshal(raw, &u); err != nil {
			return err
		}
		rows = append(rows, u)
		return nil
	})
	return rows, err
}

// places names where the users are of whom take says so; "all apps" for a row without an app.
func (c *client) places(ctx context.Context, rows []knownUser, take func(knownUser) bool) ([]string, error) {
	var names map[string]string
	var out []string
	for _, u := range rows {
		if !take(u) {
			continue
		}
		if u.AppID == nil {
			out = append(out, "all apps")
			continue
		}
		if names == nil {
			names = map[string]string{}
			err := c.list(ctx, "/airlock/v1/apps", func(raw json.RawMessage) error {
				var a struct{ ID, Name string }
				err := json.Unmarshal(raw, &a)
				names[a.ID] = a.Name
				return err
			})
			if err != nil {
				return nil, err
			}
		}
		name := names[*u.AppID]
		if name == "" {
			name = *u.AppID
		}
		out = append(out, name)
	}
	slices.Sort(out)
	return out, nil
}

// unseen says so of a user of an app, or of any ("" = nil), who never came, and who came by the same subject from another issuer: a
// block or a limit may have been meant for that one.
func (c *client) unseen(ctx context.Context, user string, app *string) (string, error) {
	rows, err := c.knownAs(ctx, user)
	if err != nil {
		return "", err
	}
	if slices.ContainsFunc(rows, func(u knownUser) bool { return u.came() && (app == nil || *u.AppID == *app) }) {
		return "", nil
	}
	where := "in any app"
	if app != nil {
		where = "in this app"
	}
	text := fmt.Sprintf("%s was not seen %s yet", user, where)
	issuer, subject, _ := strings.Cut(user, "/")
	var others []string
	err = c.list(ctx, "/airlock/v1/issuers", func(raw json.RawMessage) error {
		var i struct{ ID string }
		if err := json.Unmarshal(raw, &i); err != nil {
			return err
		}
		if i.ID == issuer {
			return nil
		}
		rows, err := c.knownAs(ctx, i.ID+"/"+subject)
		if slices.ContainsFunc(rows, knownUser.came) {
			others = append(others, i.ID+"/"+subject)
		}
		return err
	})
	if len(others) > 0 {
		text += "; seen was " + strings.Join(others, ", ")
	}
	return text, err
}

// stillBlocked names the other apps in which a user of an answer is blocked.
func (c *client) stillBlocked(ctx context.Context, answer map[string]any) (string, error) {
	user, _ := answer["user"].(string)
	rows, err := c.knownAs(ctx, user)
	if err != nil {
		return "", err
	}
	app, inApp := answer["app_id"].(string)
	where, err := c.places(ctx, rows, func(u knownUser) bool {
		same := inApp == (u.AppID != nil) && (!inApp || *u.AppID == app)
		return u.BlockedAt != nil && !same
	})
	if err != nil || len(where) == 0 {
		return "", err
	}
	still := "blocked"
	if answer["blocked_at"] == nil {
		still = "still blocked"
	}
	return fmt.Sprintf("%s is %s in: %s", user, still, strings.Join(where, ", ")), nil
}

// knownElsewhere adds to the answer that there is no such user where there is one.
func (c *client) knownElsewhere(ctx context.Context, user, app string, err error) error {
	e, ok := errors.AsType[*apiError](err)
	if !ok || e.Status != http.StatusNotFound || e.Message != "There is no such user." || strings.HasPrefix(user, "user_") {
		return err
	}
	rows, lookErr := c.knownAs(ctx, user)
	if lookErr != nil || len(rows) == 0 {
		return err
	}
	blocked, lookErr := c.places(ctx, rows, func(u knownUser) bool { return u.BlockedAt != nil })
	if lookErr != nil {
		return err
	}
	seen, lookErr := c.places(ctx, rows, func(u knownUser) bool { return u.BlockedAt == nil })
	if lookErr != nil {
		return err
	}
	here := "nothing is known in this app"
	if app == "" {
		here = "there is no block in all apps"
	}
	text := fmt.Sprintf("of %s %s", rows[0].User, here)
	if len(blocked) > 0 {
		text += "; blocked in: " + strings.Join(blocked, ", ")
	}
	if len(seen) > 0 {
		text += "; seen in: " + strings.Join(seen, ", ")
	}
	return fmt.Errorf("%w\n%s (--app says where)", err, text)
}

func userPath(user string) string { return "/airlock/v1/users/" + url.PathEscape(user) }
