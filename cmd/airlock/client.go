package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

const (
	adminPrefix = "sk-airlock-admin-"
	keyPrefix   = "sk-airlock-"
	apiVersion  = "2023-06-01"
	// sessionKeyTTL is how long an API key lives that a command holding the admin key makes for itself.
	sessionKeyTTL = time.Hour
	// sessionKeyName tells such keys from those that somebody asked for.
	sessionKeyName = "airlock command"
)

// connection says where the server is and who asks: the flags every client command has.
type connection struct {
	url, key, data, app, user string
	// chosen reports whether the flag of that name was given, nil means that none was.
	chosen func(flag string) bool
}

// addFlags adds the flags; withApp is for commands that act as an app.
func (c *connection) addFlags(cmd *cobra.Command, withApp bool) {
	f := cmd.Flags()
	c.chosen = f.Changed
	f.StringVar(&c.url, "url", "", "address of the server, with or without the /v1 of an SDK's base URL (AIRLOCK_URL; default: the one running on the data folder)")
	help := "key (AIRLOCK_KEY; default: the admin key of the data folder)"
	if !withApp {
		help = "admin key (AIRLOCK_KEY; default: that of the data folder, also where AIRLOCK_KEY is a key of an app)"
	}
	f.StringVar(&c.key, "key", "", help)
	f.StringVar(&c.data, "data", "", "data folder (AIRLOCK_DATA)")
	if withApp {
		f.StringVar(&c.app, "app", "default", "app to act for, when the key is the admin key")
		f.StringVar(&c.user, "user", "", "act as this user of the app, who alone has what the command makes; needs the admin key, or a key that may make tokens")
	}
}

// resolve fills what the flags left open from the environment and the data folder.
func (c *connection) resolve() error {
	if c.url == "" && !c.given("data") { // a flag counts for more than the environment, also for where the server is
		c.url = os.Getenv("AIRLOCK_URL")
	}
	c.url = baseURL(c.url)
	if c.key == "" {
		c.key = os.Getenv("AIRLOCK_KEY")
	}
	if c.url != "" && !strings.HasPrefix(c.url, "http://") && !strings.HasPrefix(c.url, "https://") {
		return exitError{code: 2, err: fmt.Errorf("the address %q must begin with http:// or https://", c.url)}
	}
	if c.data == "" {
		data, err := dataFolder()
		if err != nil {
			return err
		}
		c.data = data
	}
	return nil
}

// baseURL takes off what an address has beyond the server's own: some SDKs want /v1 at the end of it, others do not.
func baseURL(address string) string {
	scheme, rest, ok := strings.Cut(address, "://")
	if !ok {
		return address
	}
	return scheme + "://" + strings.TrimRight(strings.TrimSuffix(strings.TrimRight(rest, "/"), "/v1"), "/")
}

// errNoServer: nothing answers on the data folder.
var errNoServer = errors.New("no server is running on the data folder")

// serverFile is what a running server leaves in its data folder.
type serverFile struct {
	URL      string `json:"url"`
	AdminURL string `json:"admin_url"`
}

func readServerFile(data string) (serverFile, error) {
	var s serverFile
	b, err := os.ReadFile(filepath.Join(data, "server.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return s, errNoServer
	}
	if err != nil {
		return s, fmt.Errorf("data folder: %w", err)
	}
	if err := json.Unmarshal(b, &s); err != nil {
		return s, fmt.Errorf("%s: %w", filepath.Join(data, "server.json"), err)
	}
	return s, nil
}

// client talks to one server with one key.
type client struct {
	url, adminURL string
	key           string
	http          *http.Client
	// token is that of a user, in place of the key.
	token string
	// sessionKey is the id of a key made for this command; close revokes it, and the token if there is the right to.
	sessionKey string
	adminKey   string
	// began is the server's clock at its first answer, to the second.
	began time.Time
}

// refuseRedirect: the key would go along to wherever the answer points.
func refuseRedirect(req *http.Request, via []*http.Request) error {
	return fmt.Errorf("%s redirects to %s, and the key is for the address that was given: use that address with --url if it is the server's",
		via[0].URL.Host, req.URL.Redacted())
}

// dial finds the server and the key. The admin key of a data folder goes to the server of that folder and to no other.
func (c *connection) dial() (*client, error) {
	if err := c.resolve(); err != nil {
		return nil, err
	}
	cl := &client{url: c.url, adminURL: c.url, key: c.key, http: &http.Client{CheckRedirect: refuseRedirect}}
	if c.url == "" {
		s, err := readServerFile(c.data)
		if err != nil {
			return nil, fmt.Errorf("%w (%s): start one with 'airlock serve', or name its folder with --data or its address with --url", err, c.data)
		}
		cl.url, cl.adminURL = s.URL, s.AdminURL
		if cl.adminURL == "" {
			cl.adminURL = s.URL
		}
	}
	cl.url, cl.adminURL = strings.TrimRight(cl.url, "/"), strings.TrimRight(cl.adminURL, "/")
	if cl.key != "" {
		return cl, nil
	}
	if c.url != "" {
		return nil, errors.New("--url needs a key: give --key or AIRLOCK_KEY")
	}
	key, err := readAdminKey(c.data)
	if err != nil {
		return nil, err
	}
	cl.key = key
	return cl, nil
}

func readAdminKey(data string) (string, error) {
	b, err := os.ReadFile(filepath.Join(data, "admin.key"))
	if err != nil {
		return "", fmt.Errorf("admin key of the data folder: %w", err)
	}
	return strings.TrimSpace(string(b)), nil
}

// preferAdmin replaces an API key that only the environment gave by the admin key of the data folder, if the command is
// about that folder and its key can be read: who works with one key in the environment still manages the server.
func (c *connection) preferAdmin(cl *client) {
	if strings.HasPrefix(cl.key, adminPrefix) || c.url != "" || c.given("key") {
		return
	}
	if key, err := readAdminKey(c.data); err == nil {
		cl.key = key
	}
}

func (c *connection) given(flag string) bool { return c.chosen != nil && c.chosen(flag) }

// dialAdmin is dial for routes that only the admin key may use.
func (c *connection) dialAdmin() (*client, error) {
	cl, err := c.dial()
	if err != nil {
		return nil, err
	}
	c.preferAdmin(cl)
	cl.url = cl.adminURL
	return cl, nil
}

// dialAPI is dial for routes an app uses: an admin key is first exchanged for an API key of the app that lives an hour at
// most. Close the client at the end.
func (c *connection) dialAPI(ctx context.Context) (*client, error) {
	cl, err := c.dial()
	if err != nil {
		return nil, err
	}
	if c.given("app") {
		if c.preferAdmin(cl); !strings.HasPrefix(cl.key, adminPrefix) {
			return nil, errors.New("--app needs the admin key: an API key already belongs to its app")
		}
	}
	return cl, cl.become(ctx, c.app, c.user)
}

// become lets the client act for an app, or for a user of it ("" = none).
func (c *client) become(ctx context.Context, app, user string) error {
	if user != "" {
		return c.becomeUser(ctx, app, user)
	}
	return c.becomeApp(ctx, app)
}

// becomeUser takes a token of a user: of the app with the admin key, of the key's own app with another.
func (c *client) becomeUser(ctx context.Context, app, user string) error {
	var made struct {
		Token string `json:"token"`
	}
	body := map[string]any{"user": user, "ttl_seconds": int64(sessionKeyTTL / time.Second)}
	mint := c.call
	if strings.HasPrefix(c.key, adminPrefix) {
		c.adminKey, body["app"], mint = c.key, app, c.adminCall
	}
	if err := mint(ctx, http.MethodPost, "/airlock/v1/tokens", body, &made); err != nil {
		return fmt.Errorf("token for user %q: %w", user, err)
	}
	c.token = made.Token
	return nil
}

func (c *client) becomeApp(ctx context.Context, app string) error {
	if !strings.HasPrefix(c.key, adminPrefix) {
		return nil
	}
	c.adminKey = c.key
	var made struct {
		ID  string `json:"id"`
		Key string `json:"key"`
	}
	body := map[string]any{"app": app, "name": sessionKeyName, "ttl_seconds": int64(sessionKeyTTL / time.Second)}
	if err := c.adminCall(ctx, http.MethodPost, "/airlock/v1/keys", body, &made); err != nil {
		return fmt.Errorf("API key for app %q: %w", app, err)
	}
	c.key, c.sessionKey = made.Key, made.ID
	return nil
}

// close revokes the key or token that this command made for itself. A failure is no failure of the command: they end by
// themselves.
func (c *client) close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if c.sessionKey != "" {
		_ = c.adminCall(ctx, http.MethodDelete, "/airlock/v1/keys/"+c.sessionKey, nil, nil)
	}
	if c.token != "" && c.adminKey != "" { // a key that may make tokens may not revoke them
		// By the token itself, not its id: the revocation is kept until then only.
		_ = c.adminCall(ctx, http.MethodPost, "/airlock/v1/tokens/revoke", map[string]any{"token": c.token}, nil)
	}
	c.sessionKey, c.token = "", ""
}

func (c *client) adminCall(ctx context.Context, method, path string, in, out any) error {
	admin := &client{url: c.adminURL, key: c.adminKey, http: c.http}
	return admin.call(ctx, method, path, in, out)
}

// apiError is an error body of the server.
type apiError struct {
	Status    int
	Type      string
	Message   string
	Code      string
	RequestID string
}

func (e *apiError) Error() string {
	if e.Message == "" {
		return fmt.Sprintf("server answered %d", e.Status)
	}
	if e.RequestID == "" {
		return e.Message
	}
	return fmt.Sprintf("%s (%s)", e.Message, e.RequestID)
}

// readError turns an answer that is not a success into an error.
func readError(resp *http.Response) error {
	b, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return fmt.Errorf("server answered %d: %w", resp.StatusCode, err)
	}
	return parseError(resp.StatusCode, b)
}

func parseError(status int, b []byte) error {
	var body struct {
		Error struct {
			Type    string `json:"type"`
			Message string `json:"message"`
			Details struct {
				Code string `json:"error_code"`
			} `json:"details"`
		} `json:"error"`
		RequestID string `json:"request_id"`
	}
	e := &apiError{Status: status}
	if json.Unmarshal(b, &body) == nil {
		e.Type, e.Message, e.Code, e.RequestID = body.Error.Type, body.Error.Message, body.Error.Details.Code, body.RequestID
	}
	return e
}

// send makes a request with the key; the caller closes the body. An answer of 400 and more is an error.
func (c *client) send(ctx context.Context, method, path string, contentType string, body io.Reader) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.url+path, body)
	if err != nil {
		return nil, err
	}
	if c.token != "" {
		req.Header.Set("x-auth-token", c.token)
	} else {
		req.Header.Set("x-api-key", c.key)
	}
	req.Header.Set("anthropic-version", apiVersion)
	if contentType != "" {
		req.Header.Set("content-type", contentType)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		if u, ok := errors.AsType[*url.Error](err); ok {
			err = u.Err // the address is named below, once
		}
		return nil, fmt.Errorf("%s: %w", c.url, err)
	}
	if date, err := http.ParseTime(resp.Header.Get("Date")); err == nil && c.began.IsZero() {
		c.began = date
	}
	if resp.StatusCode >= 400 {
		err := readError(resp)
		if e, ok := errors.AsType[*apiError](err); ok && e.Message == "Not found" {
			e.Message += ": " + req.URL.Path // the server does not repeat what it may not admit to have
		}
		return nil, errors.Join(err, resp.Body.Close())
	}
	return resp, nil
}

// call sends in as JSON and decodes the answer into out. A nil in sends nothing, a nil out reads nothing.
func (c *client) call(ctx context.Context, method, path string, in, out any) (err error) {
	var body io.Reader
	contentType := ""
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body, contentType = bytes.NewReader(b), "application/json"
	}
	resp, err := c.send(ctx, method, path, contentType, body)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, resp.Body.Close()) }()
	if out == nil {
		return nil
	}
	if err := json.NewDecoder(resp.Body).Decode(out); err != nil {
		return fmt.Errorf("answer of %s: %w", path, err)
	}
	return nil
}

// list calls each for every element of a list of {data, next_page}, over all pages.
func (c *client) list(ctx context.Context, path string, each func(json.RawMessage) error) error {
	sep := "?"
	if strings.Contains(path, "?") {
		sep = "&"
	}
	for page := ""; ; {
		var body struct {
			Data     []json.RawMessage `json:"data"`
			NextPage *string           `json:"next_page"`
		}
		next := path + sep + "limit=100"
		if page != "" {
			next += "&page=" + url.QueryEscape(page)
		}
		if err := c.call(ctx, http.MethodGet, next, nil, &body); err != nil {
			return err
		}
		for _, d := range body.Data {
			if err := each(d); err != nil {
				return err
			}
		}
		if body.NextPage == nil || *body.NextPage == "" {
			return nil
		}
		page = *body.NextPage
	}
}
