package awsproxy

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// services are those of the query protocol, which has no header that names the
// service: by the version of their interface.
var services = map[string]string{"2010-03-31": "AmazonSNS", "2011-06-15": "AWSSecurityTokenService"}

// parseForm reads a request of the query protocol. Nil: it is none.
func parseForm(r *http.Request, body []byte) url.Values {
	if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind != "application/x-www-form-urlencoded" {
		return nil
	}
	form, err := url.ParseQuery(string(body))
	if err != nil || form.Get("Action") == "" {
		return nil
	}
	return form
}

// targetOf is what X-Amz-Target would be.
func targetOf(form url.Values) string {
	return services[form.Get("Version")] + "." + form.Get("Action")
}

// readable is the form without escapes, for Rule.Containing.
func readable(body []byte) []byte {
	text, err := url.QueryUnescape(string(body))
	if err != nil {
		return body
	}
	return []byte(text)
}

const xmlType = "text/xml; charset=utf-8"

func queryFailure(status int, code, queryCode, message string) answer {
	code = code[strings.LastIndexByte(code, '#')+1:]
	if older, _, _ := strings.Cut(queryCode, ";"); older != "" {
		code = older
	}
	side := "Sender"
	if status >= 500 {
		side = "Receiver"
	}
	return answer{
		status: status, header: http.Header{"Content-Type": {xmlType}, "X-Amzn-Requestid": {"injected-by-awsproxy"}},
		body: fmt.Appendf(nil, "<ErrorResponse><Error><Type>%s</Type><Code>%s</Code><Message>%s</Message></Error><RequestId>injected-by-awsproxy</RequestId></ErrorResponse>",
			side, escape(code), escape(message)),
	}
}

func escape(text string) string {
	var out bytes.Buffer
	_ = xml.EscapeText(&out, []byte(text)) // a buffer takes everything
	return out.String()
}

// queryBatch is a PublishBatch of SNS.
type queryBatch struct {
	rest url.Values // what belongs to no entry
	all  []url.Values
}

const entryPrefix = "PublishBatchRequestEntries.member."

func parseQueryBatch(form url.Values) (batch, bool) {
	b := &queryBatch{rest: url.Values{}}
	byNumber := map[int]url.Values{}
	for name, values := range form {
		after, isEntry := strings.CutPrefix(name, entryPrefix)
		number, field, _ := strings.Cut(after, ".")
		n, err := strconv.Atoi(number)
		if !isEntry || err != nil {
			b.rest[name] = values
			continue
		}
		if byNumber[n] == nil {
			byNumber[n] = url.Values{}
		}
		byNumber[n][field] = values
	}
	for _, n := range slices.Sorted(maps.Keys(byNumber)) {
		b.all = append(b.all, byNumber[n])
	}
	return b, len(b.all) > 0
}

func (b *queryBatch) contentType() string { return xmlType }

func (b *queryBatch) entries() []Entry {
	all := make([]Entry, len(b.all))
	for i, fields := range b.all {
		flat := map[string]string{}
		for name := range fields {
			flat[name] = fields.Get(name)
		}
		var object bytes.Buffer
		enc := json.NewEncoder(&object)
		enc.SetEscapeHTML(false)
		_ = enc.Encode(flat) // strings have no way to fail
		all[i] = Entry{Index: i, JSON: object.String(), id: fields.Get("Id")}
	}
	return all
}

func (b *queryBatch) only(kept []Entry) []byte {
	form := maps.Clone(b.rest)
	for i, e := range kept {
		for field, values := range b.all[e.Index] {
			form[entryPrefix+strconv.Itoa(i+1)+"."+field] = values
		}
	}
	return []byte(form.Encode())
}

func (b *queryBatch) failed(e Entry, code string, senderFault bool) answered {
	return answered{e.id, fmt.Appendf(nil, "<Id>%s</Id><Code>%s</Code><SenderFault>%v</SenderFault><Message>injected by awsproxy</Message>",
		escape(e.id), escape(code), senderFault)}
}

func (b *queryBatch) parse(body []byte) (batchAnswer, error) {
	type member struct {
		ID  string `xml:"Id"`
		Raw []byte `xml:",innerxml"`
	}
	var in struct {
		XMLName    xml.Name `xml:"PublishBatchResponse"`
		Successful []member `xml:"PublishBatchResult>Successful>member"`
		Failed     []member `xml:"PublishBatchResult>Failed>member"`
	}
	if err := xml.Unmarshal(body, &in); err != nil {
		return batchAnswer{}, err
	}
	wrap := func(all []member) []answered {
		out := make([]answered, len(all))
		for i, m := range all {
			out[i] = answered{m.ID, m.Raw}
		}
		return out
	}
	return batchAnswer{wrap(in.Successful), wrap(in.Failed)}, nil
}

func (b *queryBatch) format(a batchAnswer) []byte {
	var out bytes.Buffer
	list := func(name string, all []answered) {
		fmt.Fprintf(&out, "<%s>", name)
		for _, one := range all {
			fmt.Fprintf(&out, "<member>%s</member>", one.raw)
		}
		fmt.Fprintf(&out, "</%s>", name)
	}
	out.WriteString(`<PublishBatchResponse xmlns="http://sns.amazonaws.com/doc/2010-03-31/"><PublishBatchResult>`)
	list("Successful", a.successful)
	list("Failed", a.failed)
	out.WriteString("</PublishBatchResult><ResponseMetadata><RequestId>awsproxy</RequestId></ResponseMetadata></PublishBatchResponse>")
	return out.Bytes()
}
