package server

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
)

// LoadOptions are the sources of a configuration, weakest last: flags, environment, file, defaults.
type LoadOptions struct {
	// Flags maps keys ("sandbox.driver") to the values of flags that were given.
	Flags map[string]string
	// Env is the environment as os.Environ gives it.
	Env []string
	// File is a YAML file; empty = AIRLOCK_CONFIG, else none.
	File string
}

const envPrefix = "AIRLOCK_"

// Variables with our prefix that are no settings of the server: those of client commands, of tests and of the build.
var otherEnv = []string{"URL", "KEY", "APP", "USER", "CONFIG", "MODEL", "REQUIRE", "BIN"}

// LoadConfig reads the settings. A key that does not exist is an error in every source.
func LoadConfig(o LoadOptions) (Config, error) {
	cfg := DefaultConfig()
	env := environment(o.Env)
	file := o.File
	if file == "" {
		file = env[envPrefix+"CONFIG"]
	}
	if file != "" {
		if err := loadFile(&cfg, file); err != nil {
			return cfg, err
		}
	}
	if err := loadEnv(&cfg, env); err != nil {
		return cfg, err
	}
	settings := fields(&cfg)
	for _, key := range sortedKeys(o.Flags) {
		i := slices.IndexFunc(settings, func(f field) bool { return f.key == key })
		if i < 0 {
			return cfg, fmt.Errorf("there is no setting %q", key)
		}
		if err := settings[i].set(o.Flags[key]); err != nil {
			return cfg, fmt.Errorf("--%s: %w", strings.ReplaceAll(key, "_", "-"), err)
		}
	}
	if cfg.Anthropic.APIKey == "" && cfg.Anthropic.APIKeyFile == "" {
		cfg.Anthropic.APIKey = env["ANTHROPIC_API_KEY"]
	}
	return cfg, readSecrets(&cfg)
}

func environment(environ []string) map[string]string {
	env := make(map[string]string, len(environ))
	for _, kv := range environ {
		if k, v, ok := strings.Cut(kv, "="); ok {
			env[k] = v
		}
	}
	return env
}

func sortedKeys(m map[string]string) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func loadFile(cfg *Config, name string) error {
	b, err := os.ReadFile(name)
	if err != nil {
		return fmt.Errorf("read settings: %w", err)
	}
	dec := yaml.NewDecoder(bytes.NewReader(b), yaml.Strict())
	if err := dec.Decode(cfg); err != nil && !errors.Is(err, io.EOF) { // EOF: an empty file
		return fmt.Errorf("settings in %s: %s", name, yaml.FormatError(err, false, true))
	}
	return nil
}

func loadEnv(cfg *Config, env map[string]string) error {
	known := make(map[string]field)
	for _, f := range fields(cfg) {
		known[f.env()] = f
	}
	for _, k := range sortedKeys(env) {
		rest, ours := strings.CutPrefix(k, envPrefix)
		if !ours || slices.Contains(otherEnv, rest) || strings.HasPrefix(rest, "TEST_") || strings.HasPrefix(rest, "CI") {
			continue
		}
		f, ok := known[k]
		if !ok {
			return fmt.Errorf("there is no setting for the environment variable %s", k)
		}
		if err := f.set(env[k]); err != nil {
			return fmt.Errorf("%s: %w", k, err)
		}
	}
	return nil
}

// field is one settable value of a Config.
type field struct {
	key    string
	secret string // "", all, url
	value  reflect.Value
}

func (f field) env() string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(f.key, ".", "_"))
}

// fields lists everything that a flag or a variable can set, in the order of the struct.
func fields(cfg *Config) []field { return structFields("", reflect.ValueOf(cfg).Elem()) }

func structFields(prefix string, v reflect.Value) []field {
	var all []field
	for i := range v.NumField() {
		t := v.Type().Field(i)
		name := t.Tag.Get("yaml")
		if name == "-" || t.Type.Kind() == reflect.Slice {
			continue
		}
		if t.Type.Kind() == reflect.Struct {
			all = append(all, structFields(prefix+name+".", v.Field(i))...)
			continue
		}
		all = append(all, field{prefix + name, t.Tag.Get("secret"), v.Field(i)})
	}
	return all
}

func (f field) set(text string) error {
	switch f.value.Interface().(type) {
	case string:
		f.value.SetString(text)
	case bool:
		b, err := strconv.ParseBool(text)
		if err != nil {
			return fmt.Errorf("%q is neither true nor false", text)
		}
		f.value.SetBool(b)
	case time.Duration:
		d, err := time.ParseDuration(text)
		if err != nil {
			return fmt.Errorf("%q is not a duration like 30s or 10m", text)
		}
		f.value.SetInt(int64(d))
	case int, int64:
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return fmt.Errorf("%q is not a whole number", text)
		}
		f.value.SetInt(n)
	case float64:
		n, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return fmt.Errorf("%q is not a number", text)
		}
		f.value.SetFloat(n)
	default:
		return fmt.Errorf("setting %s has a type that no text can set", f.key)
	}
	return nil
}

// secretPair is a secret and the setting that names a file with it.
type secretPair struct {
	key       string
	file, val *string
}

func secretPairs(cfg *Config) []secretPair {
	pairs := []secretPair{
		{"database_file", &cfg.DatabaseFile, &cfg.Database},
		{"upstream_key_file", &cfg.UpstreamKeyFile, &cfg.UpstreamKey},
		{"anthropic.api_key_file", &cfg.Anthropic.APIKeyFile, &cfg.Anthropic.APIKey},
		{"identity.platform_secret_file", &cfg.Identity.PlatformSecretFile, &cfg.Identity.PlatformSecret},
	}
	for i := range cfg.Upstreams {
		u := &cfg.Upstreams[i]
		pairs = append(pairs, secretPair{fmt.Sprintf("upstreams.%d.api_key_file", i), &u.APIKeyFile, &u.APIKey})
	}
	return pairs
}

// readSecrets fills each secret whose file is named.
func readSecrets(cfg *Config) error {
	for _, p := range secretPairs(cfg) {
		if *p.file == "" {
			continue
		}
		if *p.val != "" {
			return fmt.Errorf("%s: the secret is set twice, by value and by file", p.key)
		}
		b, err := os.ReadFile(*p.file)
		if err != nil {
			return fmt.Errorf("%s: %w", p.key, err)
		}
		*p.val = strings.TrimSpace(string(b))
	}
	return nil
}

// PrintConfig writes the effective settings as YAML that could be loaded again but for the masked secrets.
func PrintConfig(w io.Writer, cfg Config) error {
	cfg.Upstreams = slices.Clone(cfg.Upstreams)
	for _, p := range secretPairs(&cfg) {
		if *p.file != "" {
			*p.val = "" // the file is the setting
		}
	}
	all := fields(&cfg)
	for i := range cfg.Upstreams {
		all = append(all, structFields("", reflect.ValueOf(&cfg.Upstreams[i]).Elem())...)
	}
	for _, f := range all {
		if f.secret != "" && f.value.String() != "" {
			f.value.SetString(mask(f.secret, f.value.String()))
		}
	}
	b, err := yaml.Marshal(cfg)
	if err != nil {
		return fmt.Errorf("encode settings: %w", err)
	}
	_, err = w.Write(b)
	return err
}

const masked = "********"

func mask(kind, value string) string {
	if kind != "url" {
		return masked
	}
	u, err := url.Parse(value)
	if err != nil {
		return masked
	}
	if u.User != nil {
		u.User = url.UserPassword(u.User.Username(), masked)
	}
	// Keys of object stores may stand in the query.
	q := u.Query()
	for k := range q {
		if l := strings.ToLower(k); strings.Contains(l, "key") || strings.Contains(l, "secret") || strings.Contains(l, "password") {
			q.Set(k, masked)
		}
	}
	u.RawQuery = q.Encode()
	return u.String()
}

// dataHome is $XDG_DATA_HOME or its default.
func dataHome() string {
	if d := os.Getenv("XDG_DATA_HOME"); filepath.IsAbs(d) {
		return d
	}
	home, err := os.UserHomeDir()
	if err != nil {
		home = string(filepath.Separator)
	}
	return filepath.Join(home, ".local", "share")
}

func defaultData() string { return filepath.Join(dataHome(), "airlock") }

func defaultRootFS() string { return filepath.Join(dataHome(), "airlock", "rootfs") }

// isMissing tells a missing file from other trouble.
func isMissing(err error) bool { return errors.Is(err, fs.ErrNotExist) }
