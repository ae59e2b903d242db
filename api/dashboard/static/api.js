// Calls of the API with the browser's session, and its errors as text.

export async function call(method, path, body) {
  const answer = await fetch(path, {
    method, headers: body ? { "Content-Type": "application/json" } : {}, body: body && JSON.stringify(body),
  });
  const value = answer.status === 204 ? null : await answer.json().catch(() => null);
  if (!answer.ok) throw new ApiError(value?.error ?? { code: "http_error", message: `HTTP ${answer.status}` });
  return value;
}

export class ApiError extends Error {
  constructor(error) {
    super(error.message);
    this.error = error;
  }
}

// Uploads a file with progress (0 to 1); resolves to the dataset, rejects with ApiError.
export function upload(file, onProgress) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    const form = new FormData();
    form.append("file", file);
    request.open("POST", "/v1/datasets");
    request.responseType = "json";
    request.upload.onprogress = (event) => event.lengthComputable && onProgress(event.loaded / event.total);
    request.onload = () => (request.status < 300 ? resolve(request.response)
      : reject(new ApiError(request.response?.error ?? { code: "http_error", message: `HTTP ${request.status}` })));
    request.onerror = () => reject(new ApiError({ code: "connection", message: "the upload was cut off; try again" }));
    request.send(form);
  });
}

// An error with every fault it lists, as elements; text only.
export function show(error) {
  const box = document.createElement("div");
  box.className = "cause";
  box.role = "alert";
  box.append(error.message);
  const list = document.createElement("ul");
  for (const detail of error.error?.details ?? []) {
    if (detail.message === error.message) continue; // said above
    const item = document.createElement("li");
    const where = detail.line ? `line ${detail.line}` : detail.param;
    item.textContent = [where, detail.message, detail.hint].filter(Boolean).join(": ");
    list.append(item);
  }
  if (list.childElementCount) box.append(list);
  return box;
}
