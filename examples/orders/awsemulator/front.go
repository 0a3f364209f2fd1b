package awsemulator

import (
	"bytes"
	"encoding/json"
	"io"
	"mime"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strconv"

	"github.com/google/uuid"
)

// front stands before the emulator and makes up for what it lacks of SNS.
type front struct {
	server   *httptest.Server
	emulator string // base URL
	client   *http.Client
	pass     *httputil.ReverseProxy
}

func startFront(emulator string) *front {
	base, err := url.Parse(emulator)
	if err != nil {
		panic("awsemulator: " + err.Error()) // the emulator made it
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.Proxy = nil
	transport.MaxIdleConnsPerHost = 256
	f := &front{
		emulator: emulator,
		client:   &http.Client{Transport: transport},
		pass: &httputil.ReverseProxy{
			Rewrite: func(r *httputil.ProxyRequest) {
				r.SetURL(base)
				r.Out.Host = r.In.Host
			},
			Transport:      transport,
			ModifyResponse: withoutNoise,
			// Nobody reads the answer to a request whose client has gone.
			ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
		},
	}
	f.server = httptest.NewServer(f)
	return f
}

func (f *front) close() {
	f.server.Close()
	f.client.CloseIdleConnections()
}

func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind != formType {
		f.pass.ServeHTTP(w, r)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client is gone
	}
	form, err := url.ParseQuery(string(body))
	if err == nil && form.Get("Action") == "PublishBatch" {
		f.publishBatch(w, r, form)
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	f.pass.ServeHTTP(w, r)
}

const formType = "application/x-www-form-urlencoded"

const receiveMessage = "AmazonSQS.ReceiveMessage"

// withoutNoise removes an attribute that SNS does not add, and the emulator
// does, from messages that SNS delivered to a queue: MessageId, whose value is
// the id of the message. An attribute of that name with another kind of value
// is somebody's own and stays.
func withoutNoise(resp *http.Response) error {
	if resp.Request.Header.Get("X-Amz-Target") != receiveMessage || resp.StatusCode != http.StatusOK {
		return nil
	}
	body, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err != nil {
		return err
	}
	body = quietMessages(body)
	resp.Body = io.NopCloser(bytes.NewReader(body))
	resp.ContentLength = int64(len(body))
	resp.Header.Set("Content-Length", strconv.Itoa(len(body)))
	return nil
}

func quietMessages(body []byte) []byte {
	if !bytes.Contains(body, []byte(`"MessageId":{`)) {
		return body
	}
	var answer map[string]json.RawMessage
	var messages []map[string]json.RawMessage
	if json.Unmarshal(body, &answer) != nil || json.Unmarshal(answer["Messages"], &messages) != nil {
		return body
	}
	for _, m := range messages {
		var attributes map[string]json.RawMessage
		var id struct{ StringValue string }
		if json.Unmarshal(m["MessageAttributes"], &attributes) != nil || json.Unmarshal(attributes["MessageId"], &id) != nil {
			continue
		}
		if _, err := uuid.Parse(id.StringValue); err != nil {
			continue
		}
		delete(attributes, "MessageId")
		m["MessageAttributes"] = mustJSON(attributes)
	}
	answer["Messages"] = mustJSON(messages)
	return mustJSON(answer)
}

func mustJSON(v any) []byte {
	out, err := json.Marshal(v)
	if err != nil {
		panic("awsemulator: " + err.Error()) // only values of our own making
	}
	return out
}
